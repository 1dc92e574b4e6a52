"""The judge: a trusted process that draws inputs, computes right outputs, asks workers, and decides every result."""
