"""principalflow: the dynamics of gradient descent, in continuous time.

What there is stands in `__init__.pyi`; each name is imported when it is first asked for, which keeps the start short.
"""

import lazy_loader

from principalflow._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
