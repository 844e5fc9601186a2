package backup

// LowerSealWork makes the sealing and opening of keys cheap.
func LowerSealWork() { sealWork = 10 }
