"""A PyTorch mode in which tensors in the CPU's memory say that they lie on the GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def on_cpu(device: Any) -> Any:
    """The CPU for the GPU's device in any form; any other value itself. Raises RuntimeError, as CUDA does, for a second
    GPU.
    """
    if isinstance(device, int) and not isinstance(device, bool):  # a number alone is the number of a GPU
        device = torch.device("cuda", device)
    elif isinstance(device, str) and device.partition(":")[0] == "cuda":
        device = torch.device(device)
    if not isinstance(device, torch.device) or device.type != "cuda":
        return device
    if device.index:
        raise RuntimeError(f"CUDA error: invalid device ordinal: there is one GPU, and {device} is asked for")
    return CPU


class OnTheGpu(TorchFunctionMode):
    """A mode for one thread: PyTorch's functions take the GPU's device for the CPU's, and report the CPU's as the
    GPU's.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if (answer := ANSWERS.get(func)) is not None:
            return answer(*args, **options)
        if options:
            if "device" in options:
                options = options | {"device": on_cpu(options["device"])}
            if options.get("pin_memory"):
                options = options | {"pin_memory": False}
        if any(isinstance(one, torch.device) for one in args):
            args = tuple(on_cpu(one) if isinstance(one, torch.device) else one for one in args)
        return func(*args, **options)


def _device(tensor: torch.Tensor) -> torch.device:
    return GPU if tensor.device.type == "cpu" else tensor.device


def _to(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """In place of `Tensor.to`: a move to the GPU returns the tensor itself, a move to the CPU a copy."""
    target = options["device"] if "device" in options else args[0] if args else None
    if isinstance(target, torch.device | str | int) and not isinstance(target, bool):
        real = on_cpu(target)
        if real is target and torch.device(target).type == "cpu" and len(args) < 4:
            options = options | {"copy": True}
        if "device" in options:
            options = options | {"device": real}
        else:
            args = (real, *args[1:])
    return tensor.to(*args, **options)


def _cuda(tensor: torch.Tensor, device: Any = None, *_: Any, **__: Any) -> torch.Tensor:
    on_cpu(device)
    return tensor


def _cpu(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor.to("cpu", copy=True)


def _type(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
    found = tensor.type(*args, **options)
    return found.replace("torch.", "torch.cuda.") if isinstance(found, str) else found


def _getter(name: str) -> Any:
    return getattr(torch.Tensor, name).__get__


# By PyTorch's function, or the getter of a property.
ANSWERS: dict[Any, Callable[..., Any]] = {
    _getter("device"): _device,
    _getter("is_cuda"): lambda tensor: tensor.device.type == "cpu",
    _getter("is_cpu"): lambda _: False,
    torch.Tensor.get_device: lambda _: 0,
    torch.get_device: lambda _: 0,
    torch.Tensor.to: _to,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.cpu: _cpu,
    torch.Tensor.pin_memory: lambda tensor, *_, **__: tensor,
    torch.Tensor.is_pinned: lambda _, *__, **___: False,
    torch.Tensor.type: _type,
}


def provide() -> None:
    """Patch the places that the mode does not reach: backward passes, and devices in contexts and generators."""
    for name in ("apply", "apply_boxed"):  # backward passes are called while the mode is off
        if hasattr(BackwardCFunction, name):
            setattr(BackwardCFunction, name, _asking(getattr(BackwardCFunction, name)))
    torch.Tensor.record_stream = lambda _tensor, _stream: None  # type: ignore[assignment,method-assign]
    begin = DeviceContext.__init__
    DeviceContext.__init__ = lambda context, device: begin(context, on_cpu(device))  # type: ignore[assignment,method-assign]
    generator = torch.Generator

    class Generator(generator):  # type: ignore[misc,valid-type]
        def __new__(cls, device: Any = CPU) -> Any:
            return generator.__new__(cls, device=on_cpu(device))  # type: ignore[call-arg]

    torch.Generator = Generator  # type: ignore[misc]


def _asking(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with OnTheGpu():
            return function(*args)

    return call
