// NCCL, which moves data between GPUs: loaded when it is wanted, so that programs are built and run without it. The
// functions and numbers are those of its C interface, which all versions 2 share; no header of it is needed.
#pragma once

#include <cstddef>
#include <string>

// CUDA's, which NCCL's functions take.
struct CUstream_st;

namespace inferno {

class NcclLibrary {
 public:
  struct CommState;
  using Comm = CommState*;
  using Stream = CUstream_st*;
  // What ranks that form a group must agree on.
  struct UniqueId {
    char bytes[128];
  };
  static constexpr int kSuccess = 0;
  static constexpr int kInProgress = 7;
  static constexpr int kFloat32 = 7;  // of its data types
  static constexpr int kSum = 0;      // of its operations

  // Loaded once and never unloaded. Null: it is not there or lacks a function, as `reason` says.
  [[nodiscard]] static const NcclLibrary* load(std::string& reason);
  // The same of any file.
  [[nodiscard]] static bool open(const char* name, NcclLibrary& library, std::string& reason);

  int (*get_version)(int* version) = nullptr;
  int (*get_unique_id)(UniqueId* id) = nullptr;
  int (*comm_init_rank)(Comm* comm, int ranks, UniqueId id, int rank) = nullptr;
  int (*comm_get_async_error)(Comm comm, int* error) = nullptr;
  int (*comm_destroy)(Comm comm) = nullptr;
  int (*comm_abort)(Comm comm) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
  int (*all_reduce)(const void* send, void* receive, size_t count, int type, int operation, Comm comm,
                    Stream stream) = nullptr;
  int (*send)(const void* data, size_t count, int type, int peer, Comm comm, Stream stream) = nullptr;
  int (*receive)(void* data, size_t count, int type, int peer, Comm comm, Stream stream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
};

}  // namespace inferno
