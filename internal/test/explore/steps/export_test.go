package steps

// FindOneByOne is Find without reduction.
func FindOneByOne(scenario func(*Run)) (runs int, trace string) { return find(scenario, true) }
