from torchwheel import arguments, cli


def test_every_command_of_the_parser_is_carried_out():
    assert arguments._COMMANDS.keys() == cli._COMMANDS.keys()
