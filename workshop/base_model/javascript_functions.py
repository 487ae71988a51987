"""Small, well-known JavaScript functions, written once and varied in names and spelling."""

from __future__ import annotations

from random import Random

from workshop.base_model.javascript_parts import INDEX, LISTS, RESULTS, Piece, write_function
from workshop.base_model.worlds import World

# What it does; then possible names <- parameters <- arguments of a call; then the body.
# @list, @i and @result are names to draw, @name is the function's own.
_FUNCTIONS = r"""
// Sum of the numbers in an array.
sum|sumArray|total <- @list <- [1, 2, 3]
  return @list.reduce((x, y) => x + y, 0);

// Sum of the numbers in an array.
sum|sumAll <- @list <- [4, 5]
  let @result = 0;
  for (let @i = 0; @i < @list.length; @i++) {
    @result += @list[@i];
  }
  return @result;

// Largest value of an array.
largest|maximum|findMax <- @list <- [3, 9, 2]
  let @result = @list[0];
  for (const x of @list) {
    if (x > @result) {
      @result = x;
    }
  }
  return @result;

// Largest value of an array.
largest|maxOf <- @list <- [3, 9, 2]
  return Math.max(...@list);

// Smallest value of an array.
smallest|minOf <- @list <- [3, 9, 2]
  return Math.min(...@list);

// Values without repeats.
unique|distinct|removeDuplicates <- @list <- [1, 1, 2]
  return [...new Set(@list)];

// Values without repeats.
unique|dedupe <- @list <- [1, 1, 2]
  return @list.filter((value, @i) => @list.indexOf(value) === @i);

// Reverse a string.
reverse|reverseString <- text <- 'abc'
  return text.split('').reverse().join('');

// Reverse a string.
reverseText|backwards <- text <- 'abc'
  let @result = '';
  for (const letter of text) {
    @result = letter + @result;
  }
  return @result;

// Is the text the same backwards?
isPalindrome|palindrome <- text <- 'Level'
  const clean = text.toLowerCase().replace(/[^a-z0-9]/g, '');
  return clean === [...clean].reverse().join('');

// Factorial of n.
factorial|fact <- n <- 5
  return n <= 1 ? 1 : n * @name(n - 1);

// Factorial of n.
factorial <- n <- 6
  let @result = 1;
  for (let @i = 2; @i <= n; @i++) {
    @result *= @i;
  }
  return @result;

// The n-th Fibonacci number.
fibonacci|fib <- n <- 10
  if (n < 2) {
    return n;
  }
  return @name(n - 1) + @name(n - 2);

// The n-th Fibonacci number.
fibonacci|fib <- n <- 12
  let [a, b] = [0, 1];
  for (let @i = 0; @i < n; @i++) {
    [a, b] = [b, a + b];
  }
  return a;

// Greatest common divisor.
gcd <- a, b <- 12, 18
  while (b !== 0) {
    [a, b] = [b, a % b];
  }
  return a;

// Greatest common divisor.
gcd <- a, b <- 12, 18
  return b === 0 ? a : @name(b, a % b);

// Is n a prime number?
isPrime <- n <- 17
  if (n < 2) {
    return false;
  }
  for (let @i = 2; @i * @i <= n; @i++) {
    if (n % @i === 0) {
      return false;
    }
  }
  return true;

// Is n even?
isEven <- n <- 4
  return n % 2 === 0;

// Clamp a value between two bounds.
clamp <- value, low, high <- 12, 0, 10
  return Math.min(Math.max(value, low), high);

// Numbers from start to end.
range <- start, end, step = 1 <- 0, 5
  const @result = [];
  for (let @i = start; @i < end; @i += step) {
    @result.push(@i);
  }
  return @result;

// Numbers from start to end.
range <- start, end <- 2, 6
  return Array.from({ length: end - start }, (_, @i) => start + @i);

// Split an array into chunks.
chunk <- @list, size <- [1, 2, 3, 4, 5], 2
  const @result = [];
  for (let @i = 0; @i < @list.length; @i += size) {
    @result.push(@list.slice(@i, @i + size));
  }
  return @result;

// Pair up two arrays.
zip <- left, right <- [1, 2], ['a', 'b']
  return left.map((value, @i) => [value, right[@i]]);

// Flatten a nested array.
flatten <- @list <- [1, [2, [3]]]
  return @list.reduce((flat, value) => flat.concat(Array.isArray(value) ? @name(value) : value), []);

// Flatten a nested array.
flattenDeep <- @list <- [1, [2, [3]]]
  return @list.flat(Infinity);

// Count the words of a text.
countWords|wordCount <- text <- 'one two three'
  return text.trim().split(/\s+/).filter(Boolean).length;

// How often does each letter occur?
letterCounts|frequency <- text <- 'banana'
  const @result = {};
  for (const letter of text) {
    @result[letter] = (@result[letter] || 0) + 1;
  }
  return @result;

// How often does each value occur?
tally|countBy <- @list <- ['a', 'b', 'a']
  const @result = new Map();
  for (const value of @list) {
    @result.set(value, (@result.get(value) ?? 0) + 1);
  }
  return @result;

// Capitalize the first letter.
capitalize <- word <- 'hello'
  return word.charAt(0).toUpperCase() + word.slice(1);

// Title case for a sentence.
titleCase <- text <- 'the blue door'
  return text
    .split(' ')
    .map((word) => word[0].toUpperCase() + word.slice(1).toLowerCase())
    .join(' ');

// Turn words into camelCase.
toCamelCase|camelCase <- text <- 'snake_case_name'
  return text.replace(/[-_ ]+(.)/g, (_, letter) => letter.toUpperCase());

// Count the vowels.
countVowels <- text <- 'education'
  return (text.match(/[aeiou]/gi) || []).length;

// Are two words anagrams?
isAnagram|areAnagrams <- a, b <- 'listen', 'silent'
  const normal = (word) => [...word.toLowerCase()].sort().join('');
  return normal(a) === normal(b);

// Binary search in a sorted array.
binarySearch <- @list, target <- [1, 3, 5, 7], 5
  let low = 0;
  let high = @list.length - 1;
  while (low <= high) {
    const middle = Math.floor((low + high) / 2);
    if (@list[middle] === target) {
      return middle;
    }
    if (@list[middle] < target) {
      low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  return -1;

// Bubble sort.
bubbleSort <- @list <- [3, 1, 2]
  const @result = [...@list];
  for (let @i = 0; @i < @result.length; @i++) {
    for (let j = 0; j < @result.length - @i - 1; j++) {
      if (@result[j] > @result[j + 1]) {
        [@result[j], @result[j + 1]] = [@result[j + 1], @result[j]];
      }
    }
  }
  return @result;

// Quick sort.
quickSort <- @list <- [3, 1, 2]
  if (@list.length <= 1) {
    return @list;
  }
  const [pivot, ...rest] = @list;
  const left = rest.filter((x) => x < pivot);
  const right = rest.filter((x) => x >= pivot);
  return [...@name(left), pivot, ...@name(right)];

// Compose functions from right to left.
compose <- ...functions <- Math.sqrt, Math.abs
  return (value) => functions.reduceRight((acc, fn) => fn(acc), value);

// Pipe a value through functions.
pipe <- ...functions <- Math.abs, Math.sqrt
  return (value) => functions.reduce((acc, fn) => fn(acc), value);

// Remember results of a function.
memoize <- fn <- Math.sqrt
  const cache = new Map();
  return (...args) => {
    const key = JSON.stringify(args);
    if (!cache.has(key)) {
      cache.set(key, fn(...args));
    }
    return cache.get(key);
  };

// Call a function at most once.
once <- fn <- () => 1
  let called = false;
  let @result;
  return (...args) => {
    if (!called) {
      called = true;
      @result = fn(...args);
    }
    return @result;
  };

// Wait until calls stop coming.
debounce <- fn, delay <- console.log, 100
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => fn(...args), delay);
  };

// A counter in a closure.
makeCounter|createCounter <- start = 0 <- 3
  let count = start;
  return {
    next: () => ++count,
    reset() {
      count = start;
    },
    get value() {
      return count;
    },
  };

// A function that adds.
makeAdder|adder <- x <- 2
  return (y) => x + y;

// Copy an object without some keys.
omit <- object, ...keys <- { a: 1, b: 2 }, 'a'
  return Object.fromEntries(Object.entries(object).filter(([key]) => !keys.includes(key)));

// Copy only some keys of an object.
pick <- object, keys <- { a: 1, b: 2 }, ['b']
  const @result = {};
  for (const key of keys) {
    if (key in object) {
      @result[key] = object[key];
    }
  }
  return @result;

// Swap keys and values.
invert <- object <- { a: 'x' }
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [value, key]));

// Copy a nested object.
deepClone <- value <- { a: [1, 2] }
  if (value === null || typeof value !== 'object') {
    return value;
  }
  if (Array.isArray(value)) {
    return value.map(@name);
  }
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, @name(v)]));

// Are two arrays equal?
arraysEqual <- a, b <- [1, 2], [1, 2]
  return a.length === b.length && a.every((value, @i) => value === b[@i]);

// Values that are in both arrays.
intersection|common <- a, b <- [1, 2, 3], [2, 3, 4]
  const known = new Set(b);
  return a.filter((value) => known.has(value));

// Values that only the first array has.
difference <- a, b <- [1, 2, 3], [2]
  return a.filter((value) => !b.includes(value));

// Celsius to Fahrenheit.
toFahrenheit <- celsius <- 20
  return (celsius * 9) / 5 + 32;

// Sum of the digits of n.
digitSum|sumDigits <- n <- 1234
  return String(n)
    .split('')
    .map(Number)
    .reduce((a, b) => a + b, 0);

// Transpose a matrix.
transpose <- matrix <- [[1, 2], [3, 4]]
  return matrix[0].map((_, column) => matrix.map((row) => row[column]));

// Fizz, buzz, or the number.
fizzBuzz <- n <- 15
  for (let @i = 1; @i <= n; @i++) {
    if (@i % 15 === 0) {
      console.log('FizzBuzz');
    } else if (@i % 3 === 0) {
      console.log('Fizz');
    } else if (@i % 5 === 0) {
      console.log('Buzz');
    } else {
      console.log(@i);
    }
  }

// Convert a number to another base.
toBase|toBinary <- n, base = 2 <- 10
  return n.toString(base);

// Is every bracket closed?
isBalanced <- text <- '(a[b])'
  const stack = [];
  const pairs = { ')': '(', ']': '[', '}': '{' };
  for (const c of text) {
    if ('([{'.includes(c)) {
      stack.push(c);
    } else if (c in pairs && stack.pop() !== pairs[c]) {
      return false;
    }
  }
  return stack.length === 0;

// Numbers up to a limit, one at a time.
countTo <- limit <- 3
  let n = 0;
  const next = () => (n < limit ? { value: ++n, done: false } : { value: undefined, done: true });
  return { [Symbol.iterator]: () => ({ next }) };

// Random integer between two bounds.
randomInt <- low, high <- 1, 6
  return Math.floor(Math.random() * (high - low + 1)) + low;

// Shorten long text.
truncate <- text, limit = 20 <- 'a long line', 8
  if (text.length <= limit) {
    return text;
  }
  return `${text.slice(0, limit - 3)}...`;

// Rotate an array to the left.
rotate <- @list, n <- [1, 2, 3, 4], 1
  const k = n % @list.length;
  return [...@list.slice(k), ...@list.slice(0, k)];

// Running totals.
cumulativeSum|runningTotal <- @list <- [1, 2, 3]
  let sum = 0;
  return @list.map((x) => (sum += x));

// The middle value.
median <- @list <- [5, 1, 3]
  const sorted = [...@list].sort((x, y) => x - y);
  const half = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
"""


def _parse(block: str) -> tuple[str, tuple[str, ...], str, str, str]:
    said, head, *body = block.splitlines()
    names, parameters, arguments = head.split(" <- ")
    return (
        said.removeprefix("// "),
        tuple(names.split("|")),
        parameters,
        "\n".join(line[2:] for line in body),
        arguments,
    )


_TABLE = tuple(_parse(block) for block in _FUNCTIONS.strip().split("\n\n"))


def small_function(rng: Random, world: World) -> Piece:
    """One of the functions above; it does not speak of the world."""
    said, names, parameters, body, arguments = rng.choice(_TABLE)
    name = rng.choice(names)
    drawn = {"@list": rng.choice(LISTS), "@i": rng.choice(INDEX), "@result": rng.choice(RESULTS), "@name": name}

    def fill(text: str) -> str:
        for hole, word in drawn.items():
            text = text.replace(hole, word)
        return text

    return said, write_function(rng, name, fill(parameters), fill(body)), f"{name}({fill(arguments)})"
