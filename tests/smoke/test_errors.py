"""A wrong call is refused in words that name operator, argument, expected and found."""

import pytest
import torch
from exact import by_case

import fusedops
from fusedops.call import call

# Calls with a tensor [2, 4]; a kernel and the reference refuse them in the same words.
WRONG = {
    "wrong length": (
        lambda x: fusedops.bias_gelu(x, x[0, :3]),
        r"bias_gelu: bias: expected shape \[4\] \(the last dimension of x\), found \[3\]",
    ),
    "wrong rank": (
        lambda x: fusedops.bias_gelu(x, x),
        r"bias_gelu: bias: expected shape \[4\] \(the last dimension of x\), found \[2, 4\]",
    ),
    "no dimension": (
        lambda x: fusedops.bias_gelu(x[0, 0], x[0, :1]),
        "bias_gelu: x: expected at least 1 dimension, found 0",
    ),
    "unknown form": (
        lambda x: fusedops.bias_gelu(x, x[0], approximate="fast"),
        "bias_gelu: approximate: expected 'tanh' or 'none', found 'fast'",
    ),
    "different shapes": (
        lambda x: fusedops.vector_add(x, x[0]),
        r"vector_add: b: expected shape \[2, 4\] \(that of a\), found \[4\]",
    ),
    "gradient of another shape": (
        lambda x: call(torch.ops.fusedops.bias_relu_backward, x[:1], x, x[0]),
        r"bias_relu_backward: grad: expected shape \[2, 4\] \(that of x\), found \[1, 4\]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, anywhere):
    wrong, message = WRONG[name]
    with pytest.raises(ValueError, match=f"^{message}$"):
        wrong(torch.ones(2, 4, device=anywhere))


def test_cpu_and_gpu_mixed(gpu):
    with pytest.raises(
        ValueError,
        match=r"bias_gelu: bias: expected device cuda:\d \(that of x\), found cpu",
    ):
        fusedops.bias_gelu(torch.ones(2, 4, device=gpu), torch.ones(4))
    with pytest.raises(
        ValueError,
        match=r"bias_gelu: bias: expected device cpu \(that of x\), found cuda:\d",
    ):
        fusedops.bias_gelu(torch.ones(2, 4), torch.ones(4, device=gpu))


def test_two_gpus(gpu, other_gpu):
    x, bias = torch.randn(8, 64, device=other_gpu), torch.randn(64, device=other_gpu)
    torch.testing.assert_close(
        fusedops.bias_gelu(x, bias).cpu(), fusedops.bias_gelu(x.cpu(), bias.cpu())
    )
    with pytest.raises(ValueError, match=f"found {gpu}"):
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
        with pytest.raises(ValueError, match=f"^{case.op}: {names[at]}: expected dtype {says}$"):
            function(*args[:at], wrong, *args[at + 1 :], **case.keywords)
