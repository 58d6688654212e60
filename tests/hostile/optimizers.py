"""Calls of optimisers and monitors, PyTorch's too where it is installed."""

import jax
import jax.numpy as jnp
import optax
from hostile.call import SELECTS, Call
from hostile.values import (
    DATA,
    NOTHINGS,
    NUMBERS,
    OBJECTIVES,
    PARAMETERS,
    PARAMS,
    SMALL,
    THETA,
    VALUE_FUNCTIONS,
    VECTORS,
    WORDS,
    mean_square,
)

import principalflow as pf

_OPTIONS = dict(
    power=NUMBERS,
    max_learning_rate=NUMBERS,
    factor=NUMBERS,
    per_parameter=(True, *WORDS),
    curvature=(*WORDS, "finite_difference"),
    every=NUMBERS,
    average=NUMBERS,
)
_GOOD_OPTIONS = dict(
    power=1.0, max_learning_rate=5.0, factor=2.0, per_parameter=False, curvature="hvp", every=1, average=None
)
_CDAT_OPTIONS = dict(
    scale=NUMBERS,
    power=NUMBERS,
    max_learning_rate=NUMBERS,
    measure=(*WORDS, "drift"),
    curvature=(*WORDS, "finite_difference"),
    every=NUMBERS,
    average=NUMBERS,
    skip_nonfinite=WORDS,
)
_GOOD_CDAT_OPTIONS = dict(
    scale=2.0,
    power=1.0,
    max_learning_rate=1.0,
    measure="directional",
    curvature="hvp",
    every=1,
    average=0.9,
    skip_nonfinite=False,
)
_OWN_OPTIONS = dict(momentum=NUMBERS, weight_decay=NUMBERS, skip_nonfinite=WORDS)
_GOOD_OWN_OPTIONS = dict(momentum=None, weight_decay=None, skip_nonfinite=False)


def _loss_of_params(params):
    return mean_square(params, DATA)


_UPDATE = dict(grads=PARAMS, params=PARAMS, value_fn=_loss_of_params, hvp=None, curvature_fn=None, all_params=None)
_UPDATES = dict(
    grads=PARAMETERS,
    params=PARAMETERS,
    value_fn=VALUE_FUNCTIONS,
    hvp=PARAMETERS,
    curvature_fn=VALUE_FUNCTIONS,
    all_params=PARAMETERS,
)


def _updated(make):
    def call(grads, params, value_fn, hvp, curvature_fn, all_params, **options):
        tx = make(**options)
        extra = dict(value_fn=value_fn, hvp=hvp, curvature_fn=curvature_fn, all_params=all_params)
        steps, state = tx.update(grads, tx.init(PARAMS), params, **extra)
        return steps, state

    return call


def _started(make):
    return lambda params: make(per_parameter=True).init(params)


def _observed(objective, k, every, tol, budget, to, momentum, step, params, learning_rate):
    monitor = pf.Monitor(objective, k=k, every=every, tol=tol, budget=budget, to=to, momentum=momentum)
    row = monitor.observe(step, params, learning_rate)
    monitor.summary()
    monitor.table()
    return row


_ADAM = optax.adam(0.1)
_STATE = _ADAM.update(PARAMS, _ADAM.init(PARAMS), PARAMS)[1]
_STATES = (
    *(_ADAM.init(PARAMS), _ADAM.init(PARAMS["w"]), optax.sgd(0.1).init(PARAMS), _STATE[::-1], list(_STATE), _STATE[:1]),
    *(jax.tree.map(lambda leaf: leaf * jnp.nan, _STATE), jax.tree.map(jnp.zeros_like, _STATE)),
    *(jax.tree.map(lambda leaf: -leaf, _STATE), jax.tree.map(lambda leaf: jnp.ones(5), _STATE), *NOTHINGS),
)
_TRANSFORMATIONS = (
    *(optax.sgd(0.1), optax.sgd(float("nan")), optax.sgd(float("inf")), optax.sgd(-1.0), optax.lion(0.1), optax.adam),
    *(optax.adam(0.1, b1=1.0), optax.adam(0.1, b1=2.0), optax.adam(0.1, eps=-1.0), optax.adam("0.1"), pf.dal()),
    *(optax.adam(lambda count: None), optax.sgd(0.1, momentum=1.5), optax.sgd(0.1, momentum=-1.0)),
    *(optax.adamw(0.1, weight_decay=float("nan")), optax.adamw(0.1, mask=3), optax.set_to_zero(), *NOTHINGS),
)
_EDGE = dict(tx=_ADAM, state=_STATE, params=PARAMS)
_EDGES = dict(tx=_TRANSFORMATIONS, state=_STATES, params=PARAMETERS)

OPTIMIZERS = [
    Call("optimizers.edge", pf.optimizers.edge, _EDGE, _EDGES),
    Call("optimizers.reader", lambda tx, state, params: pf.optimizers.reader(tx)(state, params), _EDGE, _EDGES),
    Call(
        "dal",
        _updated(pf.dal),
        _UPDATE | _GOOD_OPTIONS | _GOOD_OWN_OPTIONS,
        _UPDATES | _OPTIONS | _OWN_OPTIONS,
        names=("updates",),
        is_formula=True,
    ),
    Call("dal (update)", _updated(pf.dal), dict(_UPDATE), dict(_UPDATES), names=("updates",), is_formula=True),
    Call(
        "scale_by_dal",
        _updated(pf.scale_by_dal),
        _UPDATE | _GOOD_OPTIONS,
        _UPDATES | _OPTIONS,
        names=("updates",),
        is_formula=True,
    ),
    Call(
        "cdat",
        _updated(pf.cdat),
        {**_UPDATE, **_GOOD_CDAT_OPTIONS, "base": optax.sgd(1.0)},
        {**_UPDATES, **_CDAT_OPTIONS, "base": (optax.adam(1.0), optax.sgd, *NOTHINGS)},
        names=("updates",),
        is_formula=True,
    ),
    Call("cdat (init)", lambda params: pf.cdat().init(params), dict(params=PARAMS), dict(params=PARAMETERS)),
    Call("dal (init)", _started(pf.dal), dict(params=PARAMS), dict(params=PARAMETERS)),
    Call(
        "Monitor",
        _observed,
        dict(
            objective=SMALL,
            k=2,
            every=1,
            tol=1e-2,
            budget=None,
            to=None,
            momentum=0.0,
            step=0,
            params=PARAMS,
            learning_rate=0.1,
        ),
        dict(
            objective=OBJECTIVES,
            k=NUMBERS,
            every=NUMBERS,
            tol=NUMBERS,
            budget=NUMBERS,
            to=(1, [], object(), 1.5, {}, lambda row: None),
            momentum=NUMBERS,
            step=NUMBERS,
            params=(*PARAMETERS, *VECTORS),
            learning_rate=NUMBERS,
        ),
    ),
]


def torch_calls() -> list[Call]:
    import torch

    from principalflow.torch import CDAT, DAL, Monitor, edge, objective

    def parameters(*dtypes):
        return tuple([torch.ones(2, dtype=dtype, requires_grad=dtype.is_floating_point)] for dtype in dtypes)

    def stepped(params, closure, **options):
        params = (
            [p.clone().detach().requires_grad_(p.requires_grad) for p in params] if isinstance(params, list) else params
        )
        optimizer = DAL(params, **options)
        loss = optimizer.step((lambda: closure(params)) if callable(closure) else closure)
        return loss, params, optimizer

    def stepped_along(base, closure, **options):
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        optimizer = CDAT(base([x], lr=1.0) if callable(base) else base, **options)
        loss = optimizer.step((lambda: closure([x])) if callable(closure) else closure)
        return loss, x, optimizer

    def square(params):
        return sum((p * p).sum() for p in params)

    def observed(model, loss, data, step, learning_rate, **options):
        monitor = Monitor(model, loss, data, **options)
        row = monitor.observe(step, learning_rate)
        monitor.summary()
        return row

    def evaluated(theta, v, **arguments):
        found = objective(**arguments)
        return found.value_and_gradient(theta), found.hvp(theta, v), found.entries(lambda name: True)

    def edge_of(optimizer, params, **options):
        if isinstance(optimizer, str) and hasattr(torch.optim, optimizer):
            optimizer = getattr(torch.optim, optimizer)(own, lr=0.1)
            own[0].grad = torch.ones_like(own[0])
            optimizer.step()
            optimizer.param_groups[0].update(options)
        return edge(optimizer, params)

    def mean_square_of(outputs, targets):
        return (outputs - (targets["input"] if isinstance(targets, dict) else targets)).square().mean()

    torch.manual_seed(0)
    own = [torch.ones(2, requires_grad=True)]
    model = torch.nn.Linear(2, 1).double()
    data = (torch.ones(4, 2).double(), torch.ones(4, 1).double())
    strange = (torch.ones(2), [torch.ones(2)], torch.ones(3, dtype=torch.int), *NOTHINGS)
    closures = (
        lambda params: params[0],
        lambda params: None,
        lambda params: 1.0,
        lambda params: square(params) * float("nan"),
        lambda params: square(params).detach(),
        lambda params: square(params) * 1e300,
        *NOTHINGS[:8],
    )
    return [
        Call(
            "torch.edge",
            edge_of,
            dict(optimizer="SGD", params=None, lr=0.1, weight_decay=0.0),
            dict(
                optimizer=("Adam", "AdamW", "RMSprop", "NAdam", "Adagrad", *NOTHINGS),
                params=(own, own[0], parameters(torch.float64)[0], [*own, None], *strange),
                lr=NUMBERS,
                weight_decay=NUMBERS,
            ),
        ),
        Call(
            "torch.DAL",
            stepped,
            dict(params=parameters(torch.float64)[0], closure=square, **_GOOD_OPTIONS, **_GOOD_OWN_OPTIONS),
            dict(
                params=(
                    *parameters(torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.complex64),
                    *strange,
                ),
                closure=closures,
                **_OPTIONS,
                **_OWN_OPTIONS,
            ),
        ),
        Call(
            "torch.CDAT",
            stepped_along,
            dict(base=torch.optim.AdamW, closure=square, **_GOOD_CDAT_OPTIONS),
            dict(
                base=(torch.optim.SGD, torch.optim.LBFGS, *(value for value in NOTHINGS if not callable(value))),
                closure=closures,
                **_CDAT_OPTIONS,
            ),
        ),
        Call(
            "torch.objective",
            evaluated,
            dict(model=model, loss=mean_square_of, data=data, theta=THETA, v=THETA),
            dict(
                model=(torch.nn.Linear(2, 1).half(), torch.nn.Linear(2, 1), torch.nn.ReLU(), *NOTHINGS),
                loss=(
                    lambda a, b: a,
                    lambda a, b: None,
                    lambda a: a.sum(),
                    lambda a, b: a.detach().sum(),
                    *NOTHINGS[:8],
                ),
                data=(data[0], list(data), [data], [], (data[0],), iter([data]), dict(input=data[0]), {}, *strange),
                theta=(model, model.state_dict(), torch.nn.Linear(2, 1), torch.nn.ReLU(), torch.ones(3), *VECTORS),
                v=VECTORS,
                select=SELECTS,
                train_mode=WORDS,
                products=("exact", "differences", *WORDS),
            ),
            is_formula=True,
        ),
        Call(
            "torch.Monitor",
            observed,
            dict(model=model, loss=torch.nn.functional.mse_loss, data=data, k=1, every=1, step=0, learning_rate=0.1),
            dict(
                model=(torch.nn.Linear(2, 1).half(), torch.nn.ReLU(), *NOTHINGS),
                loss=(lambda a, b: a, lambda a, b: None, lambda a, b: (a - b).sum() * float("nan"), *NOTHINGS[:8]),
                data=(data[0], list(data), [data], [], (data[0],), (data[0], data[1].float()), iter([data]), *strange),
                k=NUMBERS,
                every=NUMBERS,
                tol=NUMBERS,
                budget=NUMBERS,
                momentum=NUMBERS,
                step=NUMBERS,
                learning_rate=NUMBERS,
            ),
        ),
    ]
