"""
oneDNN's primitives as steps of native/include/vtensor/step.h.

Arguments are verified before they reach oneDNN: ValueError for what is wrong, Unimplemented for
what is right but has no kernel. Everything may be called from any thread.
"""

from collections.abc import Sequence

class Unimplemented(RuntimeError):
    pass

class Desc:
    """
    The layout of a tensor in memory, or "any".

    Immutable, hashable. 1 to 12 dims of at least 0 elements each; a tensor with a dim of 0 has no
    memory (nbytes is 0). Element types: f32, bf16, f16, s32, s8, u8.
    """

    @staticmethod
    def any(dims: Sequence[int], dtype: str) -> Desc:
        """Return sizes whose layout oneDNN chooses. ValueError: dims or dtype."""

    @staticmethod
    def tag(dims: Sequence[int], dtype: str, tag: str) -> Desc:
        """
        Return the layout of a tag of tags(). ValueError: dims, dtype, tag, its rank.
        """

    @staticmethod
    def strided(dims: Sequence[int], dtype: str, strides: Sequence[int]) -> Desc:
        """
        Plain, with a stride for each dim in elements; 0 repeats one element.

        ValueError: dims or dtype; a negative stride; elements that partly share memory.
        """

    @property
    def dims(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def kind(self) -> str:
        """ "blocked" (also if plain), "any", or "opaque": reorders only."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Of each dim's outer (unsplit) part, in elements; () unless blocked."""

    @property
    def padded_dims(self) -> tuple[int, ...]: ...
    @property
    def padded_offsets(self) -> tuple[int, ...]: ...
    @property
    def inner_blocks(self) -> tuple[tuple[int, int], ...]:
        """(size, dim) of each block, the outermost first; () unless blocked."""

    @property
    def nbytes(self) -> int:
        """
        From the buffer's address to the end of the last element, in bytes.

        Pads and offset0 are included, what a large stride leaves behind the last element is not;
        0 for any.
        """

    @property
    def offset0(self) -> int:
        """Where the first element lies, in elements after the buffer's address."""

    def reshape(self, dims: Sequence[int]) -> Desc:
        """
        Return the same memory with other dims of as many elements.

        ValueError: another number of elements, or a form that cannot be seen so.
        """

    def permute(self, perm: Sequence[int]) -> Desc:
        """
        Return the same memory, dims renumbered as by numpy.transpose. ValueError: no permutation.
        """

    def submemory(self, dims: Sequence[int], offsets: Sequence[int]) -> Desc:
        """
        Return a rectangular part of the same buffer (same address; offset0 grows).

        Raises:
            ValueError: not inside, or not a blocked form.
            Unimplemented: the part cuts a block.
        """

    def __eq__(self, arg: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __repr__(self) -> str: ...

def tags() -> tuple[tuple[str, int], ...]:
    """
    Return (name, rank) of every format tag, spelled canonically: ("aBcd16b", 4).
    """

class Attr:
    """
    What follows a primitive, and its arithmetic.

    Immutable, hashable; each method returns a longer chain (of at most 32 followers), applied in
    order to the primitive's result.
    """

    def __init__(self, fpmath: str = "strict") -> None:
        """
        ``fpmath``: what f32 may become: strict (itself), bf16, f16, tf32, any.
        """

    def sum(self, scale: float = 1.0) -> Attr:
        """
        dst = result + scale * dst: the step then reads dst too. ValueError: scale.
        """

    def eltwise(self, alg: str, alpha: float = 0.0, beta: float = 0.0) -> Attr:
        """dst = alg(result), alg of eltwise_algs(). ValueError: alg, or a NaN."""

    def binary(self, alg: str, src1: Desc) -> Attr:
        """
        dst = alg(result, src1), alg of binary_algs() but no comparison, src1 stretched.

        The follower at position n of the chain adds the argument "postn_src1".
        ValueError: alg or src1.
        """

    def bounds(self, high: float) -> Attr:
        """
        dst = min(max(result, 0), high), and NaN of NaN; nothing can follow it.

        ValueError: high is negative or NaN; the chain holds a sum.
        """

    def gelu(self) -> Attr:
        """
        dst = result * (1 + erf(result / sqrt(2))) / 2, of floats; nothing can follow it.

        ValueError: the chain holds a sum.
        """

    @property
    def fpmath(self) -> str: ...
    def __len__(self) -> int: ...
    def __eq__(self, arg: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __repr__(self) -> str: ...

def eltwise_algs() -> tuple[str, ...]: ...
def binary_algs() -> tuple[str, ...]: ...
def reduction_algs() -> tuple[str, ...]: ...

class Primitive:
    """
    A kernel of oneDNN.

    Compiled at the first ``__vtensor_step__``. It runs with ``threads`` OpenMP threads, the number
    of the thread that asked for it, whichever thread runs it.
    """

    @property
    def kind(self) -> str: ...
    @property
    def kernel(self) -> str:
        """oneDNN's name of the implementation, as in "jit:avx512_core"."""

    @property
    def scratch_bytes(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def descs(self) -> dict[str, Desc]:
        """
        By argument name, "any" replaced by what was chosen; scratch is not in it.
        """

    @property
    def slots(self) -> tuple[str, ...]:
        """Argument names in the order of the step; "scratch", if any, is last."""

    def next_kernel(self) -> Primitive | None:
        """
        Return the next implementation that oneDNN offers for the same request, or None.
        """

    def __vtensor_step__(self) -> object:
        """Return a capsule with a step of native/include/vtensor/step.h."""

    def compiling(self) -> object:
        """
        Return a capsule with a step without memory that compiles this one, on any thread.
        """

    def __repr__(self) -> str: ...

def convolution(
    src: Desc,
    weights: Desc,
    bias: Desc | None,
    dst: Desc,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    attr: Attr | None = None,
) -> Primitive:
    """
    Convolution over 1 to 3 spatial dims; arguments src, weights, bias, dst.

    src N C ..., weights O I ... or G O I ... (O and I of one group), bias O, dst N O ...; one
    number for each spatial dim, dilations as in ONNX (1 is dense). Any form may be "any".
    """

def deconvolution(
    src: Desc,
    weights: Desc,
    bias: Desc | None,
    dst: Desc,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    attr: Attr | None = None,
) -> Primitive:
    """
    Transposed convolution over 1 to 3 spatial dims; arguments src, weights, bias, dst.

    As convolution, each element spread over a window of dst; pads are cut off, and an end pad
    below 0, by less than a stride, adds. Any form may be "any".
    """

def resampling(alg: str, src: Desc, dst: Desc, attr: Attr | None = None) -> Primitive:
    """
    src at dst's sizes along 1 to 3 spatial dims; arguments src, dst.

    ``alg``: "nearest" or "linear". Element y of dst is at (y + 0.5) * src size / dst size - 0.5.
    dst may be "any".
    """

def pooling(
    kind: str,
    src: Desc,
    dst: Desc,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    attr: Attr | None = None,
) -> Primitive:
    """
    Pooling over 1 to 3 spatial dims; arguments src, dst.

    ``kind``: "max", "avg_include_padding", "avg_exclude_padding". dst may be "any".
    """

def matmul(
    src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
) -> Primitive:
    """
    src (... M K) times weights (... K N) plus bias; arguments src, weights, bias, dst.

    Equal ranks of at least 2; leading dims of 1 stretch; bias stretches to dst.
    Any form may be "any".
    """

def inner_product(
    src: Desc, weights: Desc, bias: Desc | None, dst: Desc, attr: Attr | None = None
) -> Primitive:
    """
    src (N C ...) times weights (O C ...), summed over C ..., plus bias.

    dst is N O, bias O. Arguments src, weights, bias, dst. Any form may be "any".
    """

def eltwise(
    alg: str, src: Desc, dst: Desc, alpha: float = 0.0, beta: float = 0.0, attr: Attr | None = None
) -> Primitive:
    """
    alg (of eltwise_algs()) on each element; arguments src, dst, which may be one memory.
    """

def binary(alg: str, src0: Desc, src1: Desc, dst: Desc, attr: Attr | None = None) -> Primitive:
    """
    alg (of binary_algs()) on each pair; dims of 1 stretch; arguments src0, src1, dst.
    """

def prelu(src: Desc, weights: Desc, dst: Desc, attr: Attr | None = None) -> Primitive:
    """
    src, times weights where below 0; weights stretch; arguments src, weights, dst.
    """

def concat(
    axis: int, srcs: Sequence[Desc], dst: Desc | None = None, attr: Attr | None = None
) -> Primitive:
    """
    Joins along a dim; arguments src0, src1, ..., dst. No dst: oneDNN chooses its form.
    """

def reorder(src: Desc, dst: Desc, attr: Attr | None = None) -> Primitive:
    """
    Copies to another form or type (rounding to even, saturating); arguments src, dst.
    """

def batch_normalization(
    src: Desc,
    dst: Desc,
    epsilon: float,
    scale: bool = True,
    shift: bool = True,
    relu: bool = False,
    attr: Attr | None = None,
) -> Primitive:
    """
    (src - mean) / sqrt(variance + epsilon) * scale + shift for each channel (dim 1).

    Arguments src, mean, variance, scale, shift, dst; the middle ones are C elements of f32.
    """

def layer_normalization(
    src: Desc,
    stat: Desc,
    dst: Desc,
    epsilon: float,
    scale: bool = True,
    shift: bool = True,
    attr: Attr | None = None,
) -> Primitive:
    """
    (src - mean) / sqrt(variance + epsilon) * scale + shift over the last dim.

    Arguments src, scale, shift, mean, variance, dst; mean and variance are results in the form of
    ``stat``, which has src's dims but the last; scale and shift are vectors of f32.
    """

def recurrent(
    kind: str,
    direction: str,
    src_layer: Desc,
    weights_layer: Desc,
    weights_iter: Desc,
    dst_layer: Desc,
    dst_iter: Desc,
    bias: Desc | None = None,
    weights_peephole: Desc | None = None,
    src_iter: Desc | None = None,
    src_iter_c: Desc | None = None,
    dst_iter_c: Desc | None = None,
    activation: str = "",
    alpha: float = 0.0,
) -> Primitive:
    """
    Return a recurrent network of f32 with the given arguments.

    ``kind``: "vanilla_rnn" (with ``activation`` "relu", of slope ``alpha``, "tanh" or "logistic"),
    "lstm" (gates i f c o), "gru" (u r o) or "lbr_gru", reset behind the product. ``direction``:
    "forward", "reverse" or "bidirectional". Dims: src_layer T N C, weights 1 D I G O, bias 1 D G O,
    weights_peephole 1 D 3 O, states 1 D N O, dst_layer T N D*O. Weights may be "any".
    """

def softmax(
    src: Desc, dst: Desc, axis: int, log: bool = False, attr: Attr | None = None
) -> Primitive:
    """
    Softmax along a dim (0 to rank - 1), or its logarithm; arguments src, dst.
    """

def lrn(
    alg: str,
    src: Desc,
    dst: Desc,
    size: int,
    alpha: float,
    beta: float,
    k: float,
    attr: Attr | None = None,
) -> Primitive:
    """
    src * (k + alpha / n * sum of squares over a window of n elements) ** -beta.

    ``alg``: "across_channels" (n is size) or "within_channel" (n is size to the power of the number
    of spatial dims); an odd size. Arguments src, dst.
    """

def reduction(
    alg: str, src: Desc, dst: Desc, p: float = 0.0, eps: float = 0.0, attr: Attr | None = None
) -> Primitive:
    """
    alg (of reduction_algs()) over the dims where dst has 1 and src more; arguments src, dst.

    ``p`` (at least 1) and ``eps`` are those of the norms.
    """

def bounds_info() -> dict[str, int]:
    """
    Return what Attr.bounds and Attr.gelu have cost so far; ordinary numbers cost nothing.

    ``searches``: results that were searched for a NaN since a flag of the processor said that there
    may be one; ``repeats``: runs that were made again, without what they end in.
    """

def cache_info() -> dict[str, int]:
    """
    Return hits, misses, size and capacity of the cache of equal primitives.
    """

def cache_let_go() -> None:
    """
    Stop holding the primitives that the calling thread has made since its last call.

    Those that a step holds, that were used last, or whose code oneDNN never frees stay.
    """

def cache_clear() -> None:
    """Forget all primitives and both counts."""

def set_kept_code_limit(limit: int) -> None:
    """
    Limit the convolutions that are compiled to code that oneDNN never frees.

    Beyond the limit a function of one element runs in a kernel of its own if oneDNN has one.
    """

def set_cache_capacity(capacity: int) -> None:
    """
    Hold at most ``capacity`` primitives, those used last; 0 holds none.

    Primitives that a step holds are found all the same; those whose code oneDNN never frees stay.
    """

def isa() -> str:
    """
    Return the best instruction set for kernels ("avx2", "avx512_bf16", "amx", ...).

    Asking fixes it for the process.
    """

def limit_isa(name: str) -> None:
    """
    Cap the instruction set of this process, before the first use of oneDNN.

    ``name``: "sse41", "avx", "avx2", "avx512", "avx512_bf16", "amx", ..., or "max" for no cap.

    Raises:
        ValueError: unknown name.
        RuntimeError: oneDNN has fixed another instruction set already.
    """

def version() -> str:
    """Return the version of the loaded library, as in "3.2.0"."""

def library_path() -> str:
    """Return the file of the loaded library."""
