package config

// Choices returns the possible values of a key, or of each entry of its list, for shell
// completion. It returns nil if the key is unknown or takes other values.
func Choices(key string) []string {
	for _, f := range fields() {
		if f.name == key {
			return f.choices
		}
	}
	return nil
}
