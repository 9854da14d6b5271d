"""The way in for KEDA: its external scaler over gRPC."""
