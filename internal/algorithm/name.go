package algorithm

// ValidName reports whether s is a letter followed by up to 63 of A-Z a-z 0-9 _ . -
func ValidName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 64
}
