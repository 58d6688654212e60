"""Data sets, ready to train on: bundled, downloaded once, or your own."""

from principalflow.data._catalogue import describe, fetch, load, names
from principalflow.data._csv_file import csv
from principalflow.data._dataset import Dataset
from principalflow.data._download import DataError
from principalflow.data._image_folder import image_folder

__all__ = ["DataError", "Dataset", "csv", "describe", "fetch", "image_folder", "load", "names"]
