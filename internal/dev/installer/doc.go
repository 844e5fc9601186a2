// Package installer contains the tests of install.sh. They run the script under every shell on the
// machine, against small mirrors that they create and sign.
package installer
