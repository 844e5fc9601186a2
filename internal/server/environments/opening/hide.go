package opening

// Hide replaces the ciphertexts in a definition by a word, for readers: a ciphertext says nothing, and is longer than a line.
func Hide(definition string) string { return ciphertexts.ReplaceAllString(definition, "[secret]") }
