// SPDX-License-Identifier: Apache-2.0
// `tessera bench` and `tessera compare`. The records: docs/benchmark.md.
#pragma once
#include "analysis/cli/bench_case.h"
#include "analysis/cli/report.h"

namespace tessera::cli {

// Measures the table and shows it. Returns kWrong if a result is wrong or a rate impossible; throws
// Error (unsupported) if nothing of the table runs here.
ExitCode bench(const BenchOptions& options, Output& out);

// What `bench` records: first the run, then a row a measurement, last the end.
nlohmann::ordered_json run_record(const BenchOptions& options, const std::string& card);
nlohmann::ordered_json row_record(const BenchOptions& options, const Measurement& m);
nlohmann::ordered_json end_record(const BenchOptions& options, double seconds);

// Returns kRegression if a row is slower in the second file, or no longer right; throws Error
// (invalid_argument) that names the file and the line if they cannot be compared.
ExitCode compare(const CompareOptions& options, Output& out);

}  // namespace tessera::cli
