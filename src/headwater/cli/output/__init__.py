"""What commands print: tables, rows, formats and the live view."""
