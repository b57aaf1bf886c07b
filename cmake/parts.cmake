# The parts of the library, lowest layer first (docs/architecture.md).
set(KVARTO_PARTS base spec kernels plan formats cache attention text profile runtime)
