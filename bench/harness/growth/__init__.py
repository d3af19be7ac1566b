"""Growth: what each thing costs by how much there is of it. `./dev bench --rows growth`; bench/README.md says how."""
