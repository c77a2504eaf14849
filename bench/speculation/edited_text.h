// A text and the same text edited, as somebody who asks for a copy with changes has them.
#pragma once

#include <string_view>

namespace inferno {

inline constexpr std::string_view kText =
    "Dear Mrs Harding,\n\nThank you for your letter of the third of May about the garden behind the old mill. We have "
    "walked along the river twice since then, once in the morning and once late in the evening, and found the path in "
    "better order than we had feared. The wooden bridge is safe, but two of its planks should be replaced before the "
    "summer. The wall on the north side has lost some stones, and the gate no longer closes. We would ask you to send "
    "somebody to look at the hinges.\n\nThe apple trees stand in full bloom. Our gardener counted eleven of them, and "
    "thinks that seven will bear fruit this year. He would like to cut the others back in the autumn, and to plant a "
    "row of pear trees along the southern fence. The cost of all this would be about forty pounds, which we would be "
    "glad to share with you as we did three years ago.\n\nAs to the house itself, the roof is sound, and the rooms "
    "upstairs are dry. The kitchen needs a new stove. The cellar was under water in February, but has dried since, and "
    "the doors will want a coat of paint. We have asked a man from the village to do it in June, when the weather is "
    "warm enough. Please let us know whether you agree with all of this, and when you will come to see it yourself. "
    "There is always a room for you in our house, and my wife hopes that you will stay for a week.\n\nYours truly,\n"
    "Edward Marsh\n";

inline constexpr std::string_view kEditedText =
    "Dear Mr Wilkins,\n\nThank you for your letter of the ninth of May about the garden behind the old mill. We have "
    "walked along the river twice since then, once in the morning and once late in the evening, and found the path in "
    "better order than we had feared. The stone bridge is safe, but two of its slabs should be replaced before the "
    "summer. The wall on the west side has lost some stones, and the gate no longer closes. We would ask you to send "
    "a smith to look at the hinges.\n\nThe apple trees stand in full bloom. Our gardener counted fourteen of them, and "
    "thinks that nine will bear fruit this year. He would like to cut the others back in the autumn, and to plant a "
    "row of plum trees along the southern fence. The cost of all this would be about sixty pounds, which we would be "
    "glad to share with you as we did three years ago.\n\nAs to the house itself, the roof is sound, and the rooms "
    "upstairs are dry. The kitchen needs a new floor. The cellar was under water in March, but has dried since, and "
    "the doors and windows will want a coat of paint. We have asked a man from the town to do it in June, when the "
    "weather is warm enough. Please let us know whether you agree with this, and when you will come to see it "
    "yourself. There is always a room for you in our house, and my sister hopes that you will stay for a week.\n\n"
    "Yours truly,\nHenry Marsh\n";

}  // namespace inferno
