// Constructors that torch's headers call, and that libstdc++ itself has only since GCC 9
// (GLIBCXX_3.4.26): with them in the library, it loads where torch does.
#include <sstream>

template std::basic_ostringstream<char>::basic_ostringstream();
template std::basic_istringstream<char>::basic_istringstream();
template std::basic_stringstream<char>::basic_stringstream();
