"""The curvature beyond which an optimiser is unstable."""

from typing import NamedTuple


class Threshold(NamedTuple):
    """The curvature beyond which an optimiser is unstable: `times_h` over the learning rate, as a formula and why."""

    times_h: float
    formula: str
    why: str

    @classmethod
    def of(cls, momentum: float = 0.0, nesterov: bool = False, dampening: float = 0.0) -> "Threshold":
        """Returns that of gradient descent, of heavy ball or of Nesterov's momentum (Cohen et al. 2021).

        PyTorch's dampening d multiplies all gradients but the first by 1 - d, which is a smaller rate.
        """
        if not momentum:
            return cls(2.0, "2/h", "")
        if nesterov:
            times_h = (2 + 2 * momentum) / (1 + 2 * momentum)
            return cls(times_h, "2(1+m)/(1+2m)/h", f", the threshold with Nesterov's momentum m = {momentum:g},")
        why = f", the threshold with momentum m = {momentum:g},"
        if dampening:
            return cls((2 + 2 * momentum) / (1 - dampening), "2(1+m)/((1-d)h)", why)
        return cls(2 + 2 * momentum, "2(1+m)/h", why)
