#include "runtime/matrix_library.h"

#ifndef KVARTO_HAS_ONEDNN
#define KVARTO_HAS_ONEDNN 0
#endif

#if KVARTO_HAS_ONEDNN
#include <oneapi/dnnl/dnnl.h>

// Of the OpenMP runtime that oneDNN brings along; declared here because <omp.h> is the compiler's,
// and clang's comes with another runtime.
extern "C" {
void omp_set_num_threads(int num_threads);
int omp_get_max_threads(void);
}
#endif

namespace kvarto {

#if KVARTO_HAS_ONEDNN

namespace {

// oneDNN would start threads of its own for each of ours. The setting belongs to the calling
// thread and is put back.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace

bool has_matrix_library() { return true; }

bool multiply_dense(const DenseProduct& p) {
  const OneThread one_thread;
  const auto size = [](std::uint64_t n) { return static_cast<dnnl_dim_t>(n); };
  return dnnl_sgemm('N', 'T', size(p.num_tokens), size(p.num_rows), size(p.depth), 1.0f, p.a,
                    size(p.depth), p.b, size(p.depth), 0.0f, p.c, size(p.c_stride)) == dnnl_success;
}

#else

bool has_matrix_library() { return false; }
bool multiply_dense(const DenseProduct&) { return false; }

#endif

}  // namespace kvarto
