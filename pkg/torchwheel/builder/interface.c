// The digest of the headers that kernel libraries and front ends share.
__attribute__((visibility("default"))) const char torchwheel_interface[] = TORCHWHEEL_INTERFACE;
