"""Parts of networks as exporters write them today, in several shapes: as ONNX Runtime has them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.frontends.support import Array, f32, model, same_as_runtime
from vtensor import Session

#: The text, its weights, and what is fed for two sizes.
Block = tuple[str, dict[str, Array], Callable[[int, int], dict[str, Array]]]

BLOCKS: dict[str, Block] = {
    "attention": (
        """g (float[batch,seq,16] x, int64[batch,seq] mask) => (float[batch,seq,16] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] ax = {0}, int64[1] four = {4}, float two = {2},
            int64[2] ax12 = {1, 2}, float onef = {1}, float minf = {-3.4028234663852886e38},
            int64[1] ione = {1}, int64[1] sixteen = {16}> {
            q0 = MatMul(x,wq) q1 = Add(q0,bq) k0 = MatMul(x,wk) v0 = MatMul(x,wv) sh = Shape(x)
            b = Gather<axis=0>(sh,zero) t = Gather<axis=0>(sh,one) b1 = Unsqueeze(b,ax)
            t1 = Unsqueeze(t,ax) hs = Concat<axis=0>(b1,t1,four,four) q2 = Reshape(q1,hs)
            k2 = Reshape(k0,hs) v2 = Reshape(v0,hs) q = Transpose<perm=[0,2,1,3]>(q2)
            k = Transpose<perm=[0,2,3,1]>(k2) v = Transpose<perm=[0,2,1,3]>(v2) a0 = MatMul(q,k)
            a1 = Div(a0,two) m1 = Unsqueeze(mask,ax12) mf = Cast<to=1>(m1) mi = Sub(onef,mf)
            mb = Cast<to=9>(mi) ms0 = Where(mb,minf,mi) ex = Concat<axis=0>(b1,ione,t1,t1)
            ms = Expand(ms0,ex) a2 = Add(a1,ms) p = Softmax<axis=-1>(a2) o = MatMul(p,v)
            o1 = Transpose<perm=[0,2,1,3]>(o) os = Concat<axis=0>(b1,t1,sixteen) o2 = Reshape(o1,os)
            y = MatMul(o2,wo) }""",
        {
            "bq": f32(16),
            **{f"w{part}": f32(16, 16, seed=seed) for seed, part in enumerate("qkvo")},
        },
        lambda n, t: {"x": f32(n, t, 16), "mask": np.tril(np.ones((n, t), np.int64), t - 2)},
    ),
    "layernorm+gelu": (
        """g (float[b,t,16] x) => (float[b,t,16] y)
        <float two = {2}, float three = {3}, float eps = {1e-5}, float r2 = {1.4142135},
            float one = {1}, float half = {0.5}, float k = {0.044715}, float k2 = {0.7978845}> {
            m = ReduceMean<axes=[-1]>(x) d = Sub(x,m) p = Pow(d,two) v = ReduceMean<axes=[-1]>(p)
            e = Add(v,eps) sq = Sqrt(e) n = Div(d,sq) g1 = Mul(n,w) h = Add(g1,bb) a = Div(h,r2)
            er = Erf(a) e1 = Add(er,one) hm = Mul(h,e1) ge = Mul(hm,half) c = Pow(ge,three)
            c1 = Mul(c,k) c2 = Add(ge,c1) c3 = Mul(c2,k2) th = Tanh(c3) t1 = Add(th,one)
            t2 = Mul(ge,t1) y = Mul(t2,half) }""",
        {"w": f32(16), "bb": f32(16)},
        lambda n, t: {"x": f32(n, t, 16)},
    ),
    "roberta positions": (
        """g (int64[b,t] ids) => (float[b,t,8] y) <int64 pad = {1}, int64 ax = {1}> {
            ne = Equal(ids,pad) nn = Not(ne) m = Cast<to=6>(nn) cs = CumSum(m,ax)
            cs0 = Cast<to=6>(cs) inc = Mul(cs0,m) l = Cast<to=7>(inc) pos = Add(l,pad)
            y = Gather<axis=0>(table,pos) }""",
        {"table": f32(40, 8)},
        lambda n, t: {
            "ids": np.array([1 if i % 5 == 4 else i % 7 + 2 for i in range(n * t)]).reshape(n, t)
        },
    ),
    "causal mask trilu": (
        """g (float[b,t,t2] x) => (float[b,t,t2] y)
        <int64 one = {1}, int64[1] ax0 = {0}, int64 kone = {1}, float minf = {-1e9}> {
            sh = Shape(x) t = Gather<axis=0>(sh,one) t1 = Unsqueeze(t,ax0)
            sz = Concat<axis=0>(t1,t1) c = ConstantOfShape<value=float[1] {1.0}>(sz)
            u = Trilu<upper=1>(c,kone) bl = Cast<to=9>(u) y = Where(bl,minf,x) }""",
        {},
        lambda n, t: {"x": f32(n, t, t)},
    ),
    "kv scatternd": (
        """g (float[b,4,t,8] cache, float[b,4,1,8] new, int64[b,1] pos) => (float[b,4,t,8] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1}, int64[1] ax2 = {2}> {
            ct = Transpose<perm=[0,2,1,3]>(cache) nt = Transpose<perm=[0,2,1,3]>(new)
            sh = Shape(pos) b = Gather<axis=0>(sh,zero) r = Range(zero,b,one) ru = Unsqueeze(r,ax1)
            ru2 = Unsqueeze(ru,ax2) pu = Unsqueeze(pos,ax2) ix = Concat<axis=2>(ru2,pu)
            sc = ScatterND(ct,ix,nt) y = Transpose<perm=[0,2,1,3]>(sc) }""",
        {},
        lambda n, t: {
            "cache": f32(n, 4, t, 8),
            "new": f32(n, 4, 1, 8, seed=4),
            "pos": (np.arange(n) % t).reshape(n, 1),
        },
    ),
    "rope slice concat": (
        """g (float[b,t,4,8] x, int64[b,t] pos) => (float[b,t,4,8] y)
        <int64[1] ax2 = {2}, int64[1] z0 = {0}, int64[1] h = {4}, int64[1] am = {-1},
            int64[1] big = {9223372036854775807}> {
            pf = Cast<to=1>(pos) pu = Unsqueeze(pf,ax2) fr = MatMul(pu,inv)
            em = Concat<axis=-1>(fr,fr) co = Cos(em) si = Sin(em) cu = Unsqueeze(co,ax2)
            su = Unsqueeze(si,ax2) x1 = Slice(x,z0,h,am) x2 = Slice(x,h,big,am) n2 = Neg(x2)
            ro = Concat<axis=-1>(n2,x1) a = Mul(x,cu) bb = Mul(ro,su) y = Add(a,bb) }""",
        {"inv": f32(1, 4)},
        lambda n, t: {"x": f32(n, t, 4, 8), "pos": np.arange(n * t).reshape(n, t)},
    ),
    "split einsum": (
        """g (float[b,t,48] x) => (float[b,4,t,t2] y)
        <int64[3] sp = {16, 16, 16}, int64[4] hs = {0, 0, 4, 4}> {
            q0,k0,v0 = Split<axis=-1>(x,sp) q = Reshape(q0,hs) k = Reshape(k0,hs)
            y = Einsum<equation="bthd,bshd->bhts">(q,k) }""",
        {},
        lambda n, t: {"x": f32(n, t, 48)},
    ),
    "expand where range mask": (
        """g (int64[b] len, float[b,t] x) => (float[b,t] y)
        <int64 one = {1}, int64 zero = {0}, int64[1] ax0 = {0}, int64[1] ax1 = {1},
            float zf = {0}> {
            sh = Shape(x) t = Gather<axis=0>(sh,one) r = Range(zero,t,one) ru = Unsqueeze(r,ax0)
            ex = Expand(ru,sh) lu = Unsqueeze(len,ax1) m = Less(ex,lu) y = Where(m,x,zf) }""",
        {},
        lambda n, t: {"len": np.arange(n) + 1, "x": f32(n, t)},
    ),
    "bert embeddings": (
        """g (int64[b,t] ids) => (float[b,t,8] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] ax0 = {0}, int64[1] z0 = {0},
            int64[1] a1 = {1}, int64[1] l512 = {512}, int64[2] m1 = {-1, -1}, int64[1] two = {2}> {
            w = Gather(wt,ids) sh = Shape(ids) b = Gather<axis=0>(sh,zero)
            t = Gather<axis=0>(sh,one) t1 = Unsqueeze(t,ax0) b1 = Unsqueeze(b,ax0)
            pid = Slice(pids,z0,t1,a1) es = Concat<axis=0>(b1,t1) be = Concat<axis=0>(b1,l512)
            eq = Equal(be,m1) cs = ConstantOfShape<value=int64[1] {1}>(two) mm = Mul(cs,m1)
            wh = Where(eq,mm,be) tt0 = Expand(types,wh) pe = Expand(pid,es)
            tt = GatherElements<axis=1>(tt0,pe) te = Gather(tw,tt) pp = Gather(pw,pid) a = Add(w,te)
            y = Add(a,pp) }""",
        {
            "wt": f32(30, 8),
            "tw": f32(2, 8),
            "pw": f32(512, 8),
            "pids": np.arange(512)[None],
            "types": np.zeros((1, 512), np.int64),
        },
        lambda n, t: {"ids": np.arange(n * t).reshape(n, t) % 30},
    ),
    "mean pooling + normalize": (
        """g (float[b,t,8] x, int64[b,t] mask) => (float[b,8] y)
        <int64[1] ax = {-1}, int64[1] one = {1}, float[1] eps = {1e-9}, int64[2] s2 = {1, 8}> {
            mu = Unsqueeze(mask,ax) sh = Shape(x) me = Expand(mu,sh) mf = Cast<to=1>(me)
            p = Mul(x,mf) sm = ReduceSum<keepdims=0>(p,one) ms = ReduceSum<keepdims=0>(mf,one)
            mc = Clip(ms,eps,) d = Div(sm,mc) l = ReduceL2<axes=[1],keepdims=1>(d) lc = Clip(l,eps,)
            le = Expand(lc,s2) y = Div(d,le) }""",
        {},
        lambda n, t: {"x": f32(n, t, 8), "mask": np.tril(np.ones((n, t), np.int64), t - 2)},
    ),
    "dynamic pad/chunk": (
        """g (float[b,t] x) => (float[b,n,4] y)
        <int64 one = {1}, int64 four = {4}, int64[1] ax0 = {0}, int64[3] z3 = {0, 0, 0},
            int64[3] rs = {0, -1, 4}> {
            sh = Shape(x) t = Gather<axis=0>(sh,one) r = Mod(t,four) nz = Sub(four,r)
            nr = Mod(nz,four) nu = Unsqueeze(nr,ax0) pd = Concat<axis=0>(z3,nu) px = Pad(x,pd)
            y = Reshape(px,rs) }""",
        {},
        lambda n, t: {"x": f32(n, t)},
    ),
    "t5 buckets": (
        """g (float[b,t,8] x) => (float[1,4,t,t2] y)
        <int64 one = {1}, int64 zero = {0}, int64[1] ax1 = {1}, int64[1] ax0 = {0},
            int64 k16 = {16}, int64 k8 = {8}, float k8f = {8},
            float lmax = {2.77}, int64 k15 = {15}> {
            sh = Shape(x) t = Gather<axis=0>(sh,one) r = Range(zero,t,one) a = Unsqueeze(r,ax1)
            bb = Unsqueeze(r,ax0) d = Sub(bb,a) lt = Less(zero,d) li = Cast<to=7>(lt)
            l16 = Mul(li,k16) ad = Abs(d) sm = Less(ad,k8) af = Cast<to=1>(ad) dv = Div(af,k8f)
            lg = Log(dv) lm = Div(lg,lmax) l8 = Mul(lm,k8f) lc = Cast<to=7>(l8) l9 = Add(lc,k8)
            mn = Min(l9,k15) w = Where(sm,ad,mn) bk = Add(l16,w) e = Gather(tab,bk)
            tr = Transpose<perm=[2,0,1]>(e) y = Unsqueeze(tr,ax0) }""",
        {"tab": f32(32, 4)},
        lambda n, t: {"x": f32(n, t, 8)},
    ),
}


@pytest.mark.parametrize("libraries", [None, ["numpy"]])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name: str, libraries: list[str] | None) -> None:
    text, weights, feed = BLOCKS[name]
    proto = model(text, **weights)
    with Session(proto, libraries=libraries, threads=1) as session:
        for sizes in ((1, 5), (3, 9), (2, 14)):
            same_as_runtime(session, proto, feed(*sizes), 1e-3, 1e-4)
