"""Calls of objectives, descent and flows."""

import numpy as np
import optax
from hostile.call import AT, BOWL, PLACE, SELECTS, Call
from hostile.values import (
    BLOCKS,
    CUBIC,
    DATA,
    DATAS,
    FEW_FLOWS,
    FLOWS,
    INDICES,
    LOSSES,
    MATRICES,
    NOTHINGS,
    NUMBERS,
    PARAMETERS,
    PARAMS,
    SMALL,
    THETA,
    VECTORS,
    WORDS,
    mean_square,
)

import principalflow as pf


def _objective(loss, params, data, chunk, holomorphic):
    objective = pf.Objective(loss, params, data, chunk=chunk, holomorphic=holomorphic)
    theta = objective.theta
    gradient, product = objective.linearize(theta)
    everything = (theta, objective.value(theta), gradient, product(theta), objective.hvp(theta, theta))
    return (*everything, objective.third(theta, theta, theta), objective.hessian(theta))


def _over(method):
    return lambda **arguments: getattr(SMALL, method)(**arguments).value(THETA)


OBJECTIVE = [
    Call(
        "Objective",
        _objective,
        dict(loss=mean_square, params=PARAMS, data=DATA, chunk=None, holomorphic=False),
        dict(loss=LOSSES, params=PARAMETERS, data=DATAS, chunk=NUMBERS, holomorphic=WORDS),
        is_formula=True,
    ),
    Call("Objective.value", SMALL.value, dict(theta=THETA), dict(theta=VECTORS), is_formula=True),
    Call("Objective.gradient", SMALL.gradient, dict(theta=THETA), dict(theta=VECTORS), is_formula=True),
    Call(
        "Objective.value_and_gradient",
        SMALL.value_and_gradient,
        dict(theta=THETA),
        dict(theta=VECTORS),
        is_formula=True,
    ),
    Call("Objective.hvp", CUBIC.hvp, dict(theta=THETA, v=THETA), dict(theta=VECTORS, v=BLOCKS), is_formula=True),
    Call("Objective.hessian", CUBIC.hessian, dict(theta=THETA), dict(theta=VECTORS), is_formula=True),
    Call(
        "Objective.third",
        CUBIC.third,
        dict(theta=THETA, u=THETA, v=THETA),
        dict(theta=VECTORS, u=BLOCKS, v=BLOCKS),
        is_formula=True,
    ),
    Call(
        "Objective.linearize",
        lambda theta, v: CUBIC.linearize(theta)[1](v),
        dict(theta=THETA, v=THETA),
        dict(theta=VECTORS, v=BLOCKS),
        is_formula=True,
    ),
    Call(
        "Objective.function",
        lambda theta: SMALL.function()(theta),
        dict(theta=THETA),
        dict(theta=VECTORS),
        is_formula=True,
    ),
    Call("Objective.unravel", SMALL.unravel, dict(theta=THETA), dict(theta=VECTORS), is_formula=True),
    Call("Objective.flat", SMALL.flat, dict(name="theta", theta=THETA), dict(theta=VECTORS), is_formula=True),
    Call("Objective.entries", SMALL.entries, dict(select=lambda path: True), dict(select=SELECTS)),
    Call("Objective.first", _over("first"), dict(samples=2), dict(samples=NUMBERS)),
    Call("Objective.batch", _over("batch"), dict(index=[0, 2]), dict(index=INDICES)),
    Call("Objective.over", _over("over"), dict(data=DATA), dict(data=DATAS), names=("loss",), is_formula=True),
    Call("functions.quadratic", pf.functions.quadratic, dict(A=np.eye(3), b=None), dict(A=MATRICES, b=VECTORS)),
    Call(
        "functions.banana",
        lambda theta: pf.functions.banana().value(theta),
        dict(theta=[1, 2]),
        dict(theta=VECTORS),
        is_formula=True,
    ),
    Call(
        "functions.cosine_valley",
        lambda theta: pf.functions.cosine_valley().value(theta),
        dict(theta=[1.0]),
        dict(theta=VECTORS),
        is_formula=True,
    ),
]


def _recorded(every, k, tol, flow, steps):
    return pf.descend(BOWL, THETA, 0.1, steps, record=pf.Record(every=every, k=k, tol=tol, flow=flow), progress=False)


def _field(kind):
    """A flow's field on an objective, with the flow's own options beside."""

    def call(objective, theta, **given):
        flow = kind(**given)
        return flow.field(objective, theta), getattr(flow, "evaluate", lambda *_: None)(objective, theta)

    return call


def _followed(kind):
    """A short solution of a flow whose state is more than theta."""

    def call(objective, theta, **given):
        return pf.integrate(kind(**given), objective, theta, 0.01, max_steps=5)

    return call


def _coefficients(kind):
    def call(z, **given):
        flow = kind(**given)
        return getattr(flow, "alpha", lambda z: None)(z), flow.jacobian_eigenvalues(z)

    return call


_FLOWS = dict(
    NegativeGradient=({}, {}),
    PositiveGradient=({}, {}),
    IGR=(dict(h=0.1), dict(h=NUMBERS)),
    ImplicitGradientRegularization=(dict(h=0.1), dict(h=NUMBERS)),
    ThirdOrder=(dict(h=0.1), dict(h=NUMBERS)),
    BackwardError=(dict(h=0.1, order=2), dict(h=NUMBERS, order=NUMBERS)),
    TwoStep=(dict(h=0.1, order=2), dict(h=NUMBERS, order=NUMBERS)),
    Principal=(
        dict(h=0.1, branch="continuous", method="auto", rtol=1e-8, max_products=10, k=4),
        dict(h=NUMBERS, branch=("tracked", *WORDS), method=WORDS, rtol=NUMBERS, max_products=NUMBERS, k=NUMBERS),
    ),
    PrincipalThirdOrder=(dict(h=0.1, method="krylov"), dict(h=NUMBERS, method=WORDS)),
    FlippedDirection=(
        dict(index=0, rtol=1e-6, max_products=60),
        dict(index=NUMBERS, rtol=NUMBERS, max_products=NUMBERS),
    ),
)

DYNAMICS = [
    Call(
        "descend",
        pf.descend,
        dict(AT, h=0.1, steps=3, momentum=0.5, nesterov=False, keep="all", record=None, progress=False),
        dict(
            PLACE,
            h=NUMBERS,
            steps=NUMBERS,
            momentum=NUMBERS,
            nesterov=WORDS,
            keep=(*NUMBERS, *WORDS, "last"),
            record=(*NOTHINGS, pf.Record, pf.Record()),
            progress=WORDS,
        ),
    ),
    Call(
        "Record",
        _recorded,
        dict(every=1, k=2, tol=1e-2, flow=None, steps=2),
        dict(every=NUMBERS, k=NUMBERS, tol=NUMBERS, flow=FEW_FLOWS, steps=NUMBERS),
    ),
    Call(
        "Record.start",
        lambda objective, theta, h: pf.Record(k=2).start(objective)(theta, h),
        dict(AT, h=0.1),
        dict(PLACE, h=NUMBERS),
    ),
    *(
        Call(
            f"flows.{name}",
            _field(getattr(pf.flows, name)),
            dict(good, objective=CUBIC, theta=THETA),
            dict(hostile, **PLACE),
            is_formula=True,
        )
        for name, (good, hostile) in _FLOWS.items()
    ),
    *(
        Call(
            f"flows.{name}.jacobian_eigenvalues",
            _coefficients(getattr(pf.flows, name)),
            dict(good, z=THETA),
            dict(hostile, z=VECTORS),
            names=("lambdas",),
            is_formula=True,
        )
        for name, (good, hostile) in _FLOWS.items()
    ),
    Call(
        "flows.StepFlow",
        _followed(pf.flows.StepFlow),
        dict(
            step=lambda objective, x: x - 0.1 * objective.gradient(x),
            period=2,
            order=1,
            h=0.1,
            objective=CUBIC,
            theta=THETA,
        ),
        dict(PLACE, step=NOTHINGS, period=NUMBERS, order=NUMBERS, h=NUMBERS),
    ),
    Call(
        "flows.StepFlow.from_optax",
        _followed(pf.flows.StepFlow.from_optax),
        dict(tx=optax.adam(0.1), period=2, order=1, objective=CUBIC, theta=THETA),
        dict(PLACE, tx=(optax.adam, *NOTHINGS), period=NUMBERS, order=NUMBERS),
    ),
    Call(
        "flows.Central",
        _followed(pf.flows.Central),
        dict(h=0.1, k=2, substep=0.5, objective=CUBIC, theta=THETA),
        dict(PLACE, h=NUMBERS, k=NUMBERS, substep=NUMBERS),
    ),
    Call(
        "flows.CentralRMSProp",
        _followed(pf.flows.CentralRMSProp),
        dict(h=0.1, decay=0.9, eps=1e-8, nu=np.ones(3), k=2, substep=0.5, objective=CUBIC, theta=THETA),
        dict(PLACE, h=NUMBERS, decay=NUMBERS, eps=NUMBERS, nu=VECTORS, k=NUMBERS, substep=NUMBERS),
    ),
    Call(
        "flows.Rod",
        _followed(pf.flows.Rod),
        dict(h=0.1, rank=2, objective=CUBIC, theta=THETA),
        dict(PLACE, h=NUMBERS, rank=NUMBERS),
    ),
    Call(
        "flows.TwoPoint",
        _followed(pf.flows.TwoPoint),
        dict(h=0.1, begin="iterates", objective=CUBIC, theta=THETA),
        dict(PLACE, h=NUMBERS, begin=("eigenpairs", *WORDS)),
    ),
    Call(
        "flows.Pair",
        _followed(pf.flows.Pair),
        dict(h=0.1, orders=(1, 2), begin="iterates", k=2, objective=CUBIC, theta=THETA),
        dict(PLACE, h=NUMBERS, orders=((1, 2), *NUMBERS), begin=("eigenpairs", *WORDS), k=NUMBERS),
    ),
    Call(
        "flows.FlippedDirection.direction",
        lambda index, objective, theta: pf.flows.FlippedDirection(index).direction(objective, theta),
        dict(AT, index=1),
        dict(PLACE, index=NUMBERS),
        is_formula=True,
    ),
    Call(
        "flows.PrincipalThirdOrder.non_principal",
        lambda h, objective, theta: pf.flows.PrincipalThirdOrder(h).non_principal(objective, theta),
        dict(h=0.1, objective=CUBIC, theta=THETA),
        dict(PLACE, h=NUMBERS),
        is_formula=True,
    ),
    Call(
        "flows.solve_quadratic",
        pf.flows.solve_quadratic,
        dict(flow=pf.flows.IGR(0.1), A=np.eye(3), b=np.zeros(3), theta=THETA, times=[0.0, 1.0]),
        dict(flow=FLOWS, A=MATRICES, b=VECTORS, theta=VECTORS, times=VECTORS),
        is_formula=True,
    ),
    Call(
        "integrate",
        pf.integrate,
        dict(
            flow=pf.flows.NegativeGradient(),
            objective=CUBIC,
            theta=THETA,
            time=0.3,
            rtol=1e-4,
            atol=1e-6,
            solver="auto",
            step=None,
            saves=None,
            max_steps=100,
        ),
        dict(
            PLACE,
            flow=FLOWS,
            time=NUMBERS,
            rtol=NUMBERS,
            atol=NUMBERS,
            solver=(*WORDS, "euler", "tsit5"),
            step=NUMBERS,
            saves=(*NUMBERS, *VECTORS),
            max_steps=NUMBERS,
        ),
        names=("index",),
    ),
    Call(
        "integrate (euler)",
        lambda time, step: pf.integrate(pf.flows.NegativeGradient(), CUBIC, THETA, time, solver="euler", step=step),
        dict(time=0.3, step=0.1),
        dict(time=NUMBERS, step=NUMBERS),
    ),
    Call(
        "compare",
        pf.compare,
        dict(
            objective=CUBIC,
            theta=THETA,
            h=0.1,
            steps=2,
            flows=[pf.flows.IGR(0.1)],
            rtol=1e-4,
            max_steps=100,
            kinds=("local", "global"),
        ),
        dict(
            PLACE,
            h=NUMBERS,
            steps=NUMBERS,
            flows=(*FEW_FLOWS, *([flow] for flow in FLOWS[-8:]), dict(a=FLOWS[0]), {1: FLOWS[0]}, 2 * [FLOWS[0]]),
            rtol=NUMBERS,
            max_steps=NUMBERS,
            kinds=(*WORDS, "local", ["local", "local"], [None], [1], ["LOCAL"], ["global", "hvp"]),
        ),
    ),
]
