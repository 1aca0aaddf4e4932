"""Administration of Streamtable on Kafka, for the command line, the console, and programs of your own."""
