"""How datasets arrive: folders of pictures, CSV, NPZ and Parquet, each read row by row."""
