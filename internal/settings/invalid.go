package settings

// InvalidError is an error in the command line or the configuration, which a retry does not fix.
type InvalidError struct{ err error }

// Invalid marks an error as an [InvalidError].
func Invalid(err error) error { return InvalidError{err} }

// Error implements error.
func (e InvalidError) Error() string { return e.err.Error() }

// Unwrap returns the marked error.
func (e InvalidError) Unwrap() error { return e.err }
