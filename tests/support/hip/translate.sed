# Translates a kernel's source to C++ for the emulation: launches, and shared variables. Everything else of the language
# is in include/hip/hip_runtime.h.
s/\([A-Za-z_][A-Za-z_0-9]*\)<<</HONE_KERNEL(\1)<<</g
s/<<</ ->* ::hone::emulation::launch(/g
s/>>>(/)(/g
s/extern __shared__ \(__align__([0-9]*) \)\{0,1\}\(.*\) \([a-z_]*\)\[\];/\2* const \3 = reinterpret_cast<\2*>(::hone::emulation::dynamic_shared);/
s/^\( *\)__shared__ \([^;]*[ >]\)\([a-z_]*\)\(\(\[[^]]*\]\)*\);/\1static \2\3\4; ::hone::emulation::enter_shared(\&\3, sizeof(\3));/
