fn main() -> std::process::ExitCode {
    nfgen::cli::main()
}
