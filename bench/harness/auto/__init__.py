"""What the client's own choice of settings is worth. `./dev bench --rows auto`; bench/README.md says how."""
