"""A wrong call is refused in words that name operator, argument, expected and found."""

import pytest
import torch
from exact import by_case

import fusedops

# Calls by (x, bias, keywords); the message is the same from the kernels and from the reference.
WRONG = {
    "wrong length": (
        lambda d: (torch.ones(2, 4, device=d), torch.ones(3, device=d)),
        r"bias_gelu: bias: expected shape \[4\] \(the last dimension of x\), found \[3\]",
    ),
    "wrong rank": (
        lambda d: (torch.ones(2, 4, device=d), torch.ones(4, 4, device=d)),
        r"bias_gelu: bias: expected shape \[4\] \(the last dimension of x\), found \[4, 4\]",
    ),
    "no dimension": (
        lambda d: (torch.ones((), device=d), torch.ones(1, device=d)),
        "bias_gelu: x: expected at least 1 dimension, found 0",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, anywhere):
    make, message = WRONG[name]
    x, bias = make(anywhere)
    with pytest.raises((ValueError, RuntimeError), match=message):
        fusedops.bias_gelu(x, bias)


def test_unknown_form(anywhere):
    x = torch.ones(2, 4, device=anywhere)
    with pytest.raises(
        (ValueError, RuntimeError),
        match="bias_gelu: approximate: expected 'tanh' or 'none', found 'fast'",
    ):
        fusedops.bias_gelu(x, x[0], approximate="fast")


def test_different_shapes(anywhere):
    a = torch.ones(2, 4, device=anywhere)
    with pytest.raises(
        (ValueError, RuntimeError),
        match=r"vector_add: b: expected shape \[2, 4\] \(that of a\), found \[4\]",
    ):
        fusedops.vector_add(a, a[0])


def test_gradient_of_another_shape(anywhere):
    x = torch.ones(2, 4, device=anywhere)
    with pytest.raises(
        (ValueError, RuntimeError),
        match=r"bias_relu_backward: grad: expected shape \[2, 4\] \(that of x\), found \[1, 4\]",
    ):
        torch.ops.fusedops.bias_relu_backward(x[:1], x, x[0])


def test_cpu_and_gpu_mixed(gpu):
    with pytest.raises(
        (RuntimeError, ValueError),
        match=r"bias_gelu: bias: expected device cuda:\d \(that of x\), found cpu",
    ):
        fusedops.bias_gelu(torch.ones(2, 4, device=gpu), torch.ones(4))
    with pytest.raises(
        (RuntimeError, ValueError),
        match=r"bias_gelu: bias: expected device cpu \(that of x\), found cuda:\d",
    ):
        fusedops.bias_gelu(torch.ones(2, 4), torch.ones(4, device=gpu))


def test_two_gpus(gpu, other_gpu):
    x, bias = torch.randn(8, 64, device=other_gpu), torch.randn(64, device=other_gpu)
    torch.testing.assert_close(
        fusedops.bias_gelu(x, bias).cpu(), fusedops.bias_gelu(x.cpu(), bias.cpu())
    )
    with pytest.raises(RuntimeError, match=f"found {gpu}"):
        fusedops.bias_gelu(x, bias.to(gpu))


@by_case
def test_every_operator_names_a_type_that_it_is_not_for(case, anywhere):
    args, function = case.inputs(case.tiny, torch.float32, anywhere), getattr(fusedops, case.op)
    names = [one.name for one in getattr(torch.ops.fusedops, case.op).default._schema.arguments]
    for at, arg in enumerate(args):
        if not (torch.is_tensor(arg) and arg.is_floating_point()):
            continue
        wrong, says = arg.long(), r"float32, float16(, bfloat16)? or \w+, found int64"
        if at:
            like = rf"( \(that of {names[0]}\))?"
            wrong, says = arg.half(), rf"(bool or )?float32{like}, found float16"
        with pytest.raises(
            (ValueError, RuntimeError), match=f"^{case.op}: {names[at]}: expected dtype {says}$"
        ):
            function(*args[:at], wrong, *args[at + 1 :], **case.keywords)
