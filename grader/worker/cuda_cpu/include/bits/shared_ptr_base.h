// A header of libstdc++, reached by <memory> and others, which writes __attribute__((__noinline__)).
#pragma once
#pragma push_macro("__noinline__")
#undef __noinline__
#include_next <bits/shared_ptr_base.h>
#pragma pop_macro("__noinline__")
