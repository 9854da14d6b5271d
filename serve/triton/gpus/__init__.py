"""GPUs: what is read of them, by Triton, by dcgm-exporter and by NVML."""
