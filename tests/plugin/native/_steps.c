/* The steps for Python: numbers in, a capsule out. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "direct.h"

static void drop(PyObject *capsule) {
    vtensor_step *step = PyCapsule_GetPointer(capsule, VTENSOR_STEP_CAPSULE);
    step->release(step->context);
}

static PyObject *capsule_of(vtensor_step *step, const char *why) {
    if (step == NULL) {
        if (why == NULL) return PyErr_NoMemory();
        PyErr_SetString(PyExc_ValueError, why);
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(step, VTENSOR_STEP_CAPSULE, drop);
    if (capsule == NULL) step->release(step->context);
    return capsule;
}

static PyObject *convolution(PyObject *self, PyObject *args) {
    (void)self;
    direct_sizes s;
    const char *why;
    if (!PyArg_ParseTuple(
            args, "(LLLL)(LLLL)(LLLL)(LL)(LLLL):convolution",
            &s.src[0], &s.src[1], &s.src[2], &s.src[3],
            &s.weights[0], &s.weights[1], &s.weights[2], &s.weights[3],
            &s.dst[0], &s.dst[1], &s.dst[2], &s.dst[3],
            &s.strides[0], &s.strides[1],
            &s.pads[0], &s.pads[1], &s.pads[2], &s.pads[3]))
        return NULL;
    vtensor_step *step = direct_convolution(&s, &why);
    return capsule_of(step, why);
}

static PyObject *relu(PyObject *self, PyObject *args) {
    (void)self;
    long long elements;
    const char *why;
    if (!PyArg_ParseTuple(args, "L:relu", &elements)) return NULL;
    vtensor_step *step = direct_relu(elements, &why);
    return capsule_of(step, why);
}

static PyMethodDef functions[] = {
    {"convolution", convolution, METH_VARARGS, "src, weights, dst, strides, pads -> a step"},
    {"relu", relu, METH_VARARGS, "elements -> a step"},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_steps", .m_methods = functions, .m_slots = slots};

PyMODINIT_FUNC PyInit__steps(void) { return PyModuleDef_Init(&module); }
