// Readers of a text that arrives in pieces, written as if it were all there: coroutines that wait for the next byte.
//
//   Task<bool> Reader::number() {
//     INFERNO_TRY(literal("#"));
//     for (;;) {
//       const int next = co_await input_.next();
//       if (!std::isdigit(next)) co_return true;
//       input_.take();
//     }
//   }
//
// What is awaited is always the whole right side of a declaration, of an assignment or of co_return, never a part of a
// condition: g++ 12 lays the frames of coroutines with such conditions out wrongly.
//
// A task begins when it is awaited and runs as far as there is text. ByteInput keeps the innermost one that waits, and
// resume() goes on with it and then with those that await it, one after the other: the stack does not grow with the
// text. Tasks hold no lock and belong to one thread at a time.
#pragma once

#include <coroutine>
#include <exception>
#include <string_view>
#include <utility>

namespace inferno::calls {

// Of a coroutine.
struct TaskFrame {
  std::coroutine_handle<> handle;
  TaskFrame* caller = nullptr;  // which awaits it
};

class ByteInput {
 public:
  static constexpr int kEnd = -1;

  struct Next {
    ByteInput* input;
    TaskFrame* frame = nullptr;  // of who awaits it
    [[nodiscard]] bool await_ready() const { return !input->rest_.empty() || input->ended_; }
    void await_suspend(std::coroutine_handle<> /*waiting*/) const noexcept { input->waiting_ = frame; }
    [[nodiscard]] int await_resume() const {
      return input->rest_.empty() ? kEnd : static_cast<unsigned char>(input->rest_.front());
    }
  };
  // co_await: the next byte, which stays there, or kEnd.
  [[nodiscard]] Next next() { return {.input = this}; }
  // Takes the byte that next() gave.
  char take() {
    const char byte = rest_.front();
    rest_.remove_prefix(1);
    return byte;
  }

  // Begins the outermost task.
  void start(TaskFrame& task) {
    waiting_ = &task;
    resume({});
  }
  // More text, not empty, all of which is read before this returns.
  void resume(std::string_view text) {
    rest_ = text;
    for (TaskFrame* frame = std::exchange(waiting_, nullptr); frame != nullptr; frame = frame->caller) {
      frame->handle.resume();
      if (!frame->handle.done()) return;
    }
  }
  // Nothing more comes.
  void end() {
    ended_ = true;
    resume({});
  }

 private:
  std::string_view rest_;
  bool ended_ = false;
  TaskFrame* waiting_ = nullptr;
};

template <typename T>
class [[nodiscard]] Task {
 public:
  // Leaves the coroutine suspended before its first line, with its handle in its frame.
  struct Begin {
    TaskFrame* frame;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) const noexcept { frame->handle = handle; }
    void await_resume() const noexcept {}
  };

  struct promise_type : TaskFrame {  // NOLINT(readability-identifier-naming): the language's name
    T value = {};
    std::exception_ptr error;

    Task get_return_object() { return Task(this); }
    Begin initial_suspend() noexcept { return {this}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(T result) { value = std::move(result); }
    void unhandled_exception() noexcept { error = std::current_exception(); }

    template <typename U>
    Task<U>&& await_transform(Task<U>&& awaited) noexcept {
      awaited.frame().caller = this;
      return std::move(awaited);
    }
    ByteInput::Next await_transform(ByteInput::Next next) noexcept {
      next.frame = this;
      return next;
    }
  };

  Task(Task&& other) noexcept : promise_(std::exchange(other.promise_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (promise_ != nullptr) promise_->handle.destroy();
  }

  [[nodiscard]] TaskFrame& frame() const { return *promise_; }
  [[nodiscard]] T result() const {
    if (promise_->error) std::rethrow_exception(promise_->error);
    return std::move(promise_->value);
  }

  // co_await: runs it; who awaits it is suspended only where the text ends within it.
  [[nodiscard]] bool await_ready() const {
    promise_->handle.resume();
    return promise_->handle.done();
  }
  void await_suspend(std::coroutine_handle<> /*caller*/) const noexcept {}
  T await_resume() const { return result(); }

 private:
  explicit Task(promise_type* promise) : promise_(promise) {}
  promise_type* promise_;
};

}  // namespace inferno::calls

// Awaits a Task<bool>; where it gives false, so does the task that awaits it.
#define INFERNO_TRY(task)                            \
  do {                                               \
    const bool inferno_try_result = co_await (task); \
    if (!inferno_try_result) co_return false;        \
  } while (false)
