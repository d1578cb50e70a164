#include <Python.h>
int part();
int slow();
static PyObject* total(PyObject*, PyObject*) { return PyLong_FromLong(part() + slow()); }
static PyMethodDef methods[] = {{"total", total, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "many", nullptr, -1, methods,
                             nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&module); }
