"""A monitor in Hugging Face's Trainer: a small language model learns to add.

Run it with `python examples/monitor_huggingface.py`; the trainer's log has what the monitor measures, events are
printed as they come, and a summary is at the end.
"""

# pyright: reportMissingImports=false

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, default_data_collator, set_seed

from principalflow.torch import Monitor

CHARACTERS = "0123456789+="


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="results", help="the trainer's folder")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rate", type=float, default=0.01, help="the learning rate")
    options = parser.parse_args()

    sums = [f"{a:02d}+{b:02d}={a + b:03d}" for a in range(100) for b in range(100)]
    ids = torch.tensor([[CHARACTERS.index(character) for character in text] for text in sums])
    data = [{"input_ids": row, "labels": row} for row in ids]

    torch.set_num_threads(1)  # a network this small gains nothing by more, and loses much where the machine is busy
    set_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(CHARACTERS),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
        )
    )
    arguments = TrainingArguments(
        output_dir=options.out,
        max_steps=options.steps,
        per_device_train_batch_size=64,
        learning_rate=options.rate,
        warmup_steps=30,
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model, arguments, train_dataset=data)
    monitor = Monitor(model, data=default_data_collator(data[::100]), k=1, every=25)
    trainer.add_callback(monitor.trainer_callback(trainer))
    trainer.train()


if __name__ == "__main__":
    main()
