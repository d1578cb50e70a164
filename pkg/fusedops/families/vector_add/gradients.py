"""How gradients flow through vector_add."""

from torch import Tensor

from fusedops.autograd import Autograd, Context, Gradients, save_keywords


def _backward(ctx: Context, grad: Tensor) -> Gradients:
    return grad * ctx.keywords["gamma"], grad


VECTOR_ADD = Autograd(save_keywords, _backward)
