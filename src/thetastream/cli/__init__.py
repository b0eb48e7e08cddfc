"""The command line: run, explain and check jobs; generate streams; demo; bench."""
