"""Planning through the public interface: whatever way a plan comes, the answer is right."""
