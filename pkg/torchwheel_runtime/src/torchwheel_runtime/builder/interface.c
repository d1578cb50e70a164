// The digest of the headers that kernel libraries and front ends share. The text before it lets the
// loader find it in the file, before any code of the library runs.
__attribute__((visibility("default"))) const char torchwheel_interface[] =
    "torchwheel_interface=" TORCHWHEEL_INTERFACE;
