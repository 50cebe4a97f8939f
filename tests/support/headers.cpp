// Is compiled only for its precompiled headers, which all tests use.
