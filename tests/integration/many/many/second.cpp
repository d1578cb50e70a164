#include <Python.h>

static PyObject* second(PyObject*, PyObject*) { return PyLong_FromLong(7); }
static PyMethodDef methods[] = {{"second", second, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "many", nullptr, -1, methods,
                             nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit__D() { return PyModule_Create(&module); }
