package sandbox

func addHere(map[string]attack) {}
