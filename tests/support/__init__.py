"""What tests share: real servers they start themselves, and ways to wait without sleeping blindly."""
