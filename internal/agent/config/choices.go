package config

// Choices returns the values that a key, or each entry of its list, can have, or nil if there is
// no such key or it takes others. It is for what completes a command line.
func Choices(key string) []string {
	for _, f := range fields() {
		if f.name == key {
			return f.choices
		}
	}
	return nil
}
