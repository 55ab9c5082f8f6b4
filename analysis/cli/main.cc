// SPDX-License-Identifier: Apache-2.0
// The `tessera` command.
#include <cstdio>
#include <exception>
#include <new>

#include "analysis/cli/bench.h"
#include "analysis/cli/case.h"
#include "analysis/cli/demo.h"
#include "analysis/cli/options.h"
#include "analysis/cli/report.h"

namespace tessera::cli {
namespace {

int run_command(const Command& command) {
  Output out(command.json);
  switch (command.verb) {
    case Verb::list: list(out); return kOk;
    case Verb::demo: return demo(command.options, out) ? kOk : kWrong;
    case Verb::bench: return bench(command.bench, out);
    case Verb::compare: return compare(command.compare, out);
    case Verb::run:
    case Verb::check: break;
  }
  const CaseResult result = run_case(command.options);
  print(out.text(), command.options, result);
  out.record(record_of(command.options, result));
  return exit_code(result);
}

int main_of(int argc, char** argv) {
  try {
    const std::optional<Command> command = parse(argc, argv);
    const int code = command ? run_command(*command) : int(kOk);
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      throw Error(ErrorKind::invalid_argument, "standard output cannot be written");
    return code;
  } catch (const Error& e) {
    std::fprintf(stderr, "tessera: %s\n", e.what());
    return int(e.kind);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "tessera: out of memory\n");
    return kUnsupported;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tessera: internal error: %s\n", e.what());
    return int(ErrorKind::internal);
  }
}

}  // namespace
}  // namespace tessera::cli

int main(int argc, char** argv) { return tessera::cli::main_of(argc, argv); }
