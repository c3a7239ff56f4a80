-- The span that IntervalBucket and FixedWindow count in: twin of store/window.go
-- and of the limit's boundary, passed, opened and begun. A script knows no time
-- zones, so that it is told of windows of the calendar.
--
-- Their argument limit is the length in us; what kind it is: 0 begins with
-- the first charge, 1 is aligned to the Unix epoch, 2 is of the calendar (and about
-- as long); and of the last the number of pairs and the pairs, ascending: a window's
-- number, and where it begins. Between where one begins and the next all is known,
-- unless the number is -.
--
-- What isn't known is not guessed but asked: nothing is decided then, and the caller
-- sends the windows around those instants too.
--:functions
-- The length in us of the intervals with this store.Numbers.Unit, 0 if that depends
-- on where they are.
local function intervalLength(unit)
  if unit > 0 then return unit end
  return -unit % 8 == 1 and floor(-unit / 8) or 0
end

local windows = {}
function rare.window(limit)
  if windows[limit] then return windows[limit] end
  local f = fields(limit)
  local length, kind, w = f[1], f[2], {calendar = f[2] ~= 0}
  local epoch = 1767225600000000
  windows[limit] = w

  if kind ~= 2 then
    local aligned, furthest = kind == 1, floor(4503599627370496 / length)
    if aligned then furthest = max(1, floor(6307200000000000 / length)) end

    function w.opened(at)
      if aligned then return at - (at + epoch) % length end
      return at
    end

    -- where the window begins and ends that at is in, if it ends after till
    function w.longer(at, till)
      local start = w.opened(at)
      if start + length > till then return start, start + length end
    end

    -- how many windows begin after start and not after at
    function w.passed(start, at)
      if at <= start then return 0 end
      if aligned then return floor((at + epoch) / length) - floor((start + epoch) / length) end
      return floor((at - start) / length)
    end

    -- where the k-th window after the one with start begins, or a little later
    function w.latest(start, k) return start + min(k, furthest) * length end

    -- whether that is by at
    function w.by(start, k, at) return w.latest(start, k) <= at end
  else
    local n, numbers, starts = f[3], {}, {}
    for i = 1, n do
      numbers[i], starts[i] = tonumber(f[2 * i + 2]) or false, f[2 * i + 3]
    end

    local function known(at)
      local low, high = 0, n
      while low < high do
        local mid = floor((low + high + 1) / 2)
        if starts[mid] <= at then low = mid else high = mid - 1 end
      end
      return low > 0 and numbers[low] and low
    end

    -- whether not even the present is known
    w.lost = not known(now)

    -- the pair that at is in, nil if that is asked
    local function find(at) return known(at) or ask(at) end

    function w.opened(at) return starts[find(at)] end

    function w.passed(start, at)
      if at <= start then return 0 end
      local i, j = find(start), find(at)
      return i and j and numbers[j] - numbers[i]
    end

    -- clocks are never set by more than 25 hours in all, nor those of hours by one
    local slack = min(length, 90000000000)

    function w.longer(at, till)
      if at + length + slack <= till then return end -- it can't be
      local i = find(at)
      if i and starts[i + 1] > till then return starts[i], starts[i + 1] end
    end

    -- start is in the present window, if that is known
    function w.latest(start, k)
      if w.lost then return start + (k + 1) * length + slack end
      local i, number = n, numbers[find(now)] + k
      while (numbers[i] or numbers[i - 1] + 1) > number do i = i - 1 end
      local more = number - (numbers[i] or numbers[i - 1] + 1)
      if more == 0 then return starts[i] end
      return starts[i] + min(more * length + slack, 6307200000000000)
    end

    function w.by(start, k, at)
      local i, present = find(at), find(now)
      return i and present and numbers[i] >= numbers[present] + k
    end
  end

  -- where a window begins as of now: not after the present
  function w.begun(start)
    if start > now then return w.opened(now) end
    return start
  end

  -- where the present window begins, k after the one with start
  function w.moved(start, k)
    if kind == 0 then return start + k * length end
    return w.opened(now)
  end

  return w
end
